select * from {{ source('gold', 'rebalances') }}
