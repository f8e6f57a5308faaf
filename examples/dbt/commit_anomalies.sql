select * from {{ source('gold', 'commit_anomalies') }}
