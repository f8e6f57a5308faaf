"""Names of Kafka's client settings (AdminClientConfig, ConsumerConfig, ProducerConfig of Kafka 4.3.1 and 4.4.0)."""

from typing import Final

_SECURITY = """
security.protocol security.providers sasl.mechanism sasl.jaas.config sasl.client.callback.handler.class
sasl.login.callback.handler.class sasl.login.class sasl.kerberos.service.name sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.oauthbearer.allow.unverified.audience
sasl.oauthbearer.allow.unverified.issuer sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
ssl.truststore.password ssl.truststore.type
"""
SECURITY: Final = frozenset(_SECURITY.split())
"""Settings that decide whom a client trusts and how it authenticates: a misspelled name must be an error."""

_CONNECTION = """
client.dns.lookup client.id config.providers connections.max.idle.ms metadata.max.age.ms receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
"""
CONNECTION: Final = frozenset(_CONNECTION.split())
"""Settings of the connection that are used here."""

_OTHER = """
request.timeout.ms
bootstrap.controllers bootstrap.resolve.timeout.ms bootstrap.servers default.api.timeout.ms enable.metrics.push
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms retries retry.backoff.max.ms retry.backoff.ms
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack enable.auto.commit
exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level key.deserializer
max.partition.fetch.bytes max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms
share.acknowledgement.mode share.acquire.mode value.deserializer acks batch.size buffer.memory
compression.gzip.level compression.lz4.level compression.type compression.zstd.level delivery.timeout.ms
enable.idempotence key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection max.request.size
metadata.max.idle.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
partitioner.ignore.keys transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
auto.include.jmx.reporter buffer.memory.allocation.strategy metadata.cluster.check.enable partitioner.rack.aware
"""
OTHER: Final = frozenset(_OTHER.split())
"""Settings of other clients that share the file; they have no effect here."""

_SASL: Final = "org.apache.kafka.common.security."
_OAUTH: Final = _SASL + "oauthbearer."
_CONSUMER: Final = "org.apache.kafka.clients.consumer."

CLASSES: Final = {
    "interceptor.classes": (),
    "metric.reporters": ("org.apache.kafka.common.metrics.JmxReporter",),
    "key.serializer": ("org.apache.kafka.common.serialization.",),
    "value.serializer": ("org.apache.kafka.common.serialization.",),
    "key.deserializer": ("org.apache.kafka.common.serialization.",),
    "value.deserializer": ("org.apache.kafka.common.serialization.",),
    "partitioner.class": ("org.apache.kafka.clients.producer.",),
    "partition.assignment.strategy": tuple(
        _CONSUMER + name
        for name in ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")
    ),
    "security.providers": (),
    "ssl.engine.factory.class": (_SASL + "ssl.DefaultSslEngineFactory",),
    "sasl.login.class": (_SASL + "authenticator.DefaultLogin",),
    "sasl.client.callback.handler.class": ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",),
    "sasl.login.callback.handler.class": (
        _OAUTH + "OAuthBearerLoginCallbackHandler",
        _OAUTH + "secured.OAuthBearerLoginCallbackHandler",
        _OAUTH + "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    ),
    "sasl.oauthbearer.jwt.retriever.class": tuple(
        _OAUTH + name for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
    ),
    "sasl.oauthbearer.jwt.validator.class": tuple(
        _OAUTH + name for name in ("DefaultJwtValidator", "ClientJwtValidator")
    ),
}
"""Settings with names of Java classes -> the classes, or their package, that we can replace."""
