select * from {{ source('gold', 'redeliveries') }}
