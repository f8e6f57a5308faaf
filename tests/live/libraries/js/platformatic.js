// A member by @platformatic/kafka.
const { settings, says, onCommand } = require("./member.js");

(async () => {
  const { Consumer } = await import("@platformatic/kafka");
  const consumer = new Consumer({
    clientId: settings.name,
    groupId: settings.group,
    bootstrapBrokers: [settings.servers],
    sessionTimeout: settings.session_ms,
    heartbeatInterval: settings.heartbeat_ms,
    rebalanceTimeout: Math.max(20000, settings.session_ms),
    autocommit: settings.commit_ms,
    metadataMaxAge: 2000,
  });
  const flat = (assignments) =>
    (assignments || []).flatMap(({ topic, partitions }) => partitions.map((partition) => [topic, partition]));
  consumer.on("consumer:group:join", (payload) => says("owns", flat(payload.assignments ?? consumer.assignments)));
  consumer.on("consumer:group:rebalance", () => says("owns"));

  // A stream that fails (a commit of a generation that is over) ends, and its topics leave the subscription with it.
  async function consume(topics) {
    says("subscription", []);
    const stream = await consumer.consume({ topics, mode: "committed", fallbackMode: "earliest" });
    stream.on("data", () => {});
    stream.on("error", (error) => {
      console.error(error);
      setTimeout(() => consume(topics), 200);
    });
  }
  onCommand(async (command) => {
    if (command === "stop") {
      await consumer.close(true);
      says("closed");
      process.exit(0);
    }
  });
  await consume(settings.topics);
})();
