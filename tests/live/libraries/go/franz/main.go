// A member by franz-go.
package main

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"groupledger/live/member"
)

func main() {
	me := member.New()
	note := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			me.Says(event, member.Flat(partitions))
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(me.Servers),
		kgo.ConsumerGroup(me.Group),
		kgo.ClientID(me.Name),
		kgo.ConsumeTopics(me.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(member.Ms(me.SessionMs)),
		kgo.HeartbeatInterval(member.Ms(me.HeartbeatMs)),
		kgo.AutoCommitInterval(member.Ms(me.CommitMs)),
		kgo.MetadataMaxAge(member.Ms(2000)),
		kgo.MetadataMinAge(member.Ms(500)),
		kgo.OnPartitionsAssigned(note("assigned")),
		kgo.OnPartitionsRevoked(note("revoked")),
		kgo.OnPartitionsLost(note("lost")),
	)
	member.Must(err)
	go func() {
		for {
			if client.PollFetches(context.Background()).IsClientClosed() {
				return
			}
		}
	}()
	for command := range me.Commands {
		switch command[0] {
		case "stop":
			client.Close()
			me.Says("closed", nil)
			return
		case "subscribe":
			client.AddConsumeTopics(strings.Split(command[1], ",")...)
		}
	}
}
