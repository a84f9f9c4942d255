// Command go_trace sends and consumes with the trace of Apache's Go client on.
//
//	go_trace NAMESRV TOPIC
//
// It prints "sent KIND MSGID" for each message and "ok" when they are consumed, and ends when its
// input does: the client says nowhere when it has handed its records over.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const wait = 120 * time.Second

func must(err error, what string) {
	if err != nil {
		fmt.Printf("failed: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	namesrv, topic := []string{os.Args[1]}, os.Args[2]
	config := func() *primitive.TraceConfig {
		return &primitive.TraceConfig{Access: primitive.Local,
			Resolver: primitive.NewPassthroughResolver(namesrv)}
	}
	p, err := rocketmq.NewProducer(producer.WithNameServer(namesrv),
		producer.WithGroupName("TraceGoP"), producer.WithInstanceName("go-trace-p"),
		producer.WithTrace(config()))
	must(err, "new producer")
	must(p.Start(), "start the producer")
	tagged := primitive.NewMessage(topic, []byte("tagged"))
	tagged.WithTag("TagA").WithKeys([]string{"k1", "k2"})
	bare := primitive.NewMessage(topic, []byte("bare"))
	for kind, message := range map[string]*primitive.Message{"tagged": tagged, "bare": bare} {
		result, err := p.SendSync(context.Background(), message)
		must(err, "send")
		fmt.Printf("sent %s %s\n", kind, result.MsgID)
	}
	got := make(chan string, 16)
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(namesrv),
		consumer.WithGroupName("TraceGoC"), consumer.WithInstance("go-trace-c"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithTrace(config()))
	must(err, "new consumer")
	must(c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context,
		batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range batch {
			got <- message.MsgId
		}
		return consumer.ConsumeSuccess, nil
	}), "subscribe")
	must(c.Start(), "start the consumer")
	end := time.After(wait)
	for range [2]int{} {
		select {
		case <-got:
		case <-end:
			fmt.Println("failed: not consumed in time")
			os.Exit(1)
		}
	}
	fmt.Println("ok")
	_, err = io.ReadAll(os.Stdin)
	must(err, "read the input")
	must(c.Shutdown(), "shut the consumer down")
	must(p.Shutdown(), "shut the producer down")
}
