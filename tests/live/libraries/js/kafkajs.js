// A member by kafkajs.
const { Kafka, logLevel } = require("kafkajs");
const { settings, says, onCommand, flat } = require("./member.js");

const kafka = new Kafka({ clientId: settings.name, brokers: [settings.servers], logLevel: logLevel.ERROR });
const consumer = kafka.consumer({
  groupId: settings.group,
  sessionTimeout: settings.session_ms,
  heartbeatInterval: settings.heartbeat_ms,
  rebalanceTimeout: 20000,
  metadataMaxAge: 2000,
});
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => says("owns", flat(payload.memberAssignment)));
consumer.on(consumer.events.REBALANCING, () => says("owns"));

onCommand(async (command) => {
  if (command === "stop") {
    await consumer.disconnect();
    says("closed");
    process.exit(0);
  }
});

(async () => {
  await consumer.connect();
  await consumer.subscribe({ topics: settings.topics, fromBeginning: true });
  await consumer.run({ autoCommitInterval: settings.commit_ms, eachMessage: async () => {} });
})();
