// What the JavaScript members share: settings, commands of standard input, callbacks to a file. The end of the input
// ends the process without leaving.
const fs = require("node:fs");
const readline = require("node:readline");

const settings = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));

function says(event, partitions = []) {
  const line = { at: Date.now(), group: settings.group, member: settings.name, event, partitions };
  fs.appendFileSync(settings.callbacks, JSON.stringify(line) + "\n");
}

function onCommand(act) {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", (line) => act(...line.split(" ")));
  lines.on("close", () => process.exit(1));
}

/** [[topic, partition], ...] of {topic: [partition, ...]} */
function flat(assignment) {
  return Object.entries(assignment || {}).flatMap(([topic, partitions]) => partitions.map((it) => [topic, it]));
}

module.exports = { settings, says, onCommand, flat };
