select * from {{ source('gold', 'partition_owners') }}
