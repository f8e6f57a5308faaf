select cast(day as date) as date_day from {{ ref('group_summary') }}
union
select cast(day as date) as date_day from {{ ref('share_group_summary') }}
