// A member by sarama.
package main

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/IBM/sarama"

	"groupledger/live/member"
)

type handler struct{ me *member.Member }

func (it handler) Setup(session sarama.ConsumerGroupSession) error {
	it.me.Says("owns", member.Flat(session.Claims()))
	return nil
}

func (it handler) Cleanup(sarama.ConsumerGroupSession) error {
	it.me.Says("owns", nil)
	return nil
}

func (it handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	me := member.New()
	config := sarama.NewConfig()
	config.ClientID = me.Name
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = member.Ms(me.CommitMs)
	config.Consumer.Group.Session.Timeout = member.Ms(me.SessionMs)
	config.Consumer.Group.Heartbeat.Interval = member.Ms(me.HeartbeatMs)
	config.Consumer.Group.Rebalance.Timeout = member.Ms(20000)
	config.Metadata.RefreshFrequency = member.Ms(2000)
	group, err := sarama.NewConsumerGroup([]string{me.Servers}, me.Group, config)
	member.Must(err)

	var lock sync.Mutex
	topics := me.Topics
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			lock.Lock()
			now, subscribed := ctx, topics
			lock.Unlock()
			if err := group.Consume(now, subscribed, handler{me}); errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
		}
	}()
	for command := range me.Commands {
		switch command[0] {
		case "stop":
			member.Must(group.Close())
			<-ended
			me.Says("closed", nil)
			return
		case "subscribe":
			// The session ends, and the same member joins again with other topics.
			lock.Lock()
			topics = strings.Split(command[1], ",")
			previous := cancel
			ctx, cancel = context.WithCancel(context.Background())
			lock.Unlock()
			previous()
		}
	}
}
