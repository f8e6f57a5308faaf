select * from {{ source('gold', 'log_anomalies') }}
