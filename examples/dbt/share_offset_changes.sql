select * from {{ source('gold', 'share_offset_changes') }}
