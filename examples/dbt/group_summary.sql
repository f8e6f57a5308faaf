select * from {{ source('gold', 'group_summary') }}
