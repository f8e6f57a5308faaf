select * from {{ source('gold', 'hanging_transactions') }}
