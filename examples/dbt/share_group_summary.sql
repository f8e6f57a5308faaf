select * from {{ source('gold', 'share_group_summary') }}
