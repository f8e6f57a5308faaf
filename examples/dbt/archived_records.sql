select * from {{ source('gold', 'archived_records') }}
