"""Settings of inference, used where no log has the value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """Thresholds and assumptions. Defaults are those of the brokers and clients of Kafka 4.3.1. Times in ms."""

    delivery_count_limit: int = 5
    """group.share.delivery.count.limit of the brokers."""
    record_lock_duration_ms: int = 30_000
    """group.share.record.lock.duration.ms of the brokers."""
    modern_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms, and of share and streams groups."""
    session_timeout_ms_min: int = 6_000
    """group.min.session.timeout.ms of the brokers: no member expires sooner than this after its last sign of life."""
    storm_generation_count: int = 5
    """This many generations within `storm_window_ms` are a storm."""
    storm_window_ms: int = 10 * 60_000
    rollout_pause_ms: int = 10 * 60_000
    """Longest pause within a rolling deployment: members that join or go later do not belong to it."""
    stalled_ms: int = 60 * 60_000
    """A partition is STALLED if its committed offset stays for this long while commits continue."""
    skip_offset_count: int = 10_000
    """A commit is a SKIP if it jumps ahead by this much, and by far more than before."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes of the brokers."""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms of the brokers."""
    lag_sample_age_max_ms: int = 10 * 60_000
    """A sample of a topic's end that is further away than this says nothing about a commit's lag."""
    late_ms: int = 30_000
    """Results for share partitions are settled when this much time has passed in their log; before that, another log
    may still add information about that time."""
