// A member by segmentio/kafka-go.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"groupledger/live/member"
)

func main() {
	me := member.New()
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                     me.Group,
		Brokers:                []string{me.Servers},
		Dialer:                 &kafka.Dialer{ClientID: me.Name, Timeout: 10 * time.Second, DualStack: true},
		Topics:                 me.Topics,
		SessionTimeout:         member.Ms(me.SessionMs),
		HeartbeatInterval:      member.Ms(me.HeartbeatMs),
		RebalanceTimeout:       20 * time.Second,
		JoinGroupBackoff:       time.Second,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: 2 * time.Second,
		StartOffset:            kafka.FirstOffset,
	})
	member.Must(err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			generation, err := group.Next(context.Background())
			if errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			if err != nil {
				continue
			}
			consume(me, generation)
		}
	}()
	for command := range me.Commands {
		if command[0] == "stop" {
			member.Must(group.Close())
			<-ended
			me.Says("closed", nil)
			return
		}
	}
}

// consume reads what the generation assigns, and commits what was read from time to time.
func consume(me *member.Member, generation *kafka.Generation) {
	var owned []member.Partition
	offsets := make(chan [3]any, 1024)
	for topic, partitions := range generation.Assignments {
		for _, it := range partitions {
			owned = append(owned, member.Partition{topic, it.ID})
			generation.Start(func(ctx context.Context) {
				reader := kafka.NewReader(kafka.ReaderConfig{
					Brokers: []string{me.Servers}, Topic: topic, Partition: it.ID, MaxWait: 500 * time.Millisecond,
				})
				defer reader.Close()
				member.Must(reader.SetOffset(it.Offset))
				for {
					message, err := reader.ReadMessage(ctx)
					if err != nil {
						return
					}
					select {
					case offsets <- [3]any{topic, it.ID, message.Offset + 1}:
					case <-ctx.Done():
						return
					}
				}
			})
		}
	}
	me.Says("owns", owned)
	generation.Start(func(ctx context.Context) {
		ticker := time.NewTicker(member.Ms(me.CommitMs))
		defer ticker.Stop()
		read := map[string]map[int]int64{}
		for {
			select {
			case it := <-offsets:
				topic := it[0].(string)
				if read[topic] == nil {
					read[topic] = map[int]int64{}
				}
				read[topic][it[1].(int)] = it[2].(int64)
			case <-ticker.C:
				if len(read) > 0 && generation.CommitOffsets(read) == nil {
					read = map[string]map[int]int64{}
				}
			case <-ctx.Done():
				me.Says("owns", nil)
				return
			}
		}
	})
}
