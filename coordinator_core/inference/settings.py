"""What inference goes by where no log tells it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """Thresholds and assumptions. Defaults are those of Kafka 4.3.1's brokers and clients. Times in ms."""

    delivery_count_limit: int = 5
    """group.share.delivery.count.limit of the brokers."""
    record_lock_duration_ms: int = 30_000
    """group.share.record.lock.duration.ms of the brokers."""
    modern_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms, and of share and streams groups."""
    session_timeout_ms_min: int = 6_000
    """group.min.session.timeout.ms of the brokers: no member expires sooner after its last sign of life."""
    storm_generation_count: int = 5
    """So many generations within `storm_window_ms` are a storm."""
    storm_window_ms: int = 10 * 60_000
    rollout_pause_ms: int = 10 * 60_000
    """A rolling deployment goes on within so long: members that come or go later are not of it."""
    stalled_ms: int = 60 * 60_000
    """A partition whose committed offset stays so long, commits going on, is STALLED."""
    skip_offset_count: int = 10_000
    """A commit that jumps ahead by so much, and by far more than its neighbours, is a SKIP."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes of the brokers."""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms of the brokers."""
    lag_sample_age_max_ms: int = 10 * 60_000
    """A sample of a topic's end further away than this says nothing of a commit's lag."""
    late_ms: int = 30_000
    """What is said of share partitions is settled when so much time has passed in their log; sooner, another log may
    still tell something of the time."""
