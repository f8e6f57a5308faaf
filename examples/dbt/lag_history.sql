select * from {{ source('gold', 'lag_history') }}
