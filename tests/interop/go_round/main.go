// Command go_round takes Apache's Go client through sends and consumption with a broker.
//
//	go_round -namesrv 127.0.0.1:9876 [-wait 60s] [-access-key K -secret-key S]
//
// The last line is "ok N checks"; a failure is printed and ends with status 1. Every wait has a
// bound, which must allow for the client's habit of looking for its queues only every 20 s.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	propertyName  = "имя свойства"
	propertyValue = "значение ☃ 𝄞 "
	asyncCount    = 8
	batchCount    = 6
	largeSize     = 3 << 20
)

var (
	namesrv = flag.String("namesrv", "127.0.0.1:9876", "the name server")
	wait    = flag.Duration("wait", 120*time.Second, "the longest wait for one condition")
	checks  int
	keys    primitive.Credentials
)

func main() {
	flag.StringVar(&keys.AccessKey, "access-key", "", "sign requests with this key")
	flag.StringVar(&keys.SecretKey, "secret-key", "", "and this one")
	flag.Parse()
	rlog.SetLogLevel("fatal")
	id := fmt.Sprintf("%x", time.Now().UnixMilli())
	start := time.Now()
	r := &round{topic: "GoRound-" + id, id: id, sent: map[string]*primitive.Message{}}
	r.run()
	fmt.Printf("took %.1f s\n", time.Since(start).Seconds())
	fmt.Printf("ok %d checks\n", checks)
}

func check(holds bool, format string, args ...any) {
	checks++
	if !holds {
		fmt.Printf("failed: "+format+"\n", args...)
		os.Exit(1)
	}
}

func must(err error, what string) {
	check(err == nil, "%s: %v", what, err)
}

func until(what string, condition func() bool) {
	end := time.Now().Add(*wait)
	for !condition() {
		check(time.Now().Before(end), "not within %v: %s", *wait, what)
		time.Sleep(20 * time.Millisecond)
	}
	checks++
}

// sink keeps what a consumer is given, duplicates included.
type sink struct {
	lock     sync.Mutex
	messages []*primitive.MessageExt
}

func (s *sink) take(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.messages = append(s.messages, batch...)
	return consumer.ConsumeSuccess, nil
}

func (s *sink) all() []*primitive.MessageExt {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]*primitive.MessageExt(nil), s.messages...)
}

func (s *sink) size() int { return len(s.all()) }

type round struct {
	topic, id string
	producer  rocketmq.Producer
	sent      map[string]*primitive.Message
}

func (r *round) run() {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{*namesrv}),
		producer.WithGroupName("GoRoundP"),
		producer.WithInstanceName("go-round-p"),
		producer.WithSendMsgTimeout(15*time.Second),
		producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()),
		producer.WithCredentials(keys),
	)
	must(err, "new producer")
	must(p.Start(), "start the producer")
	r.producer = p
	r.sync()
	r.async()
	r.oneway()
	r.batch()
	r.large()
	r.consume()
	must(p.Shutdown(), "shut the producer down")
}

func (r *round) message(body, tag string) *primitive.Message {
	name := nameOf(body)
	m := primitive.NewMessage(r.topic, []byte(body))
	m.WithTag(tag)
	m.WithKeys([]string{"ключ-" + name, "clé-" + name})
	m.WithProperty(propertyName, propertyValue+name)
	r.sent[body] = m
	return m
}

func nameOf(body string) string {
	if len(body) > 30 {
		return "large"
	}
	return body
}

func (r *round) accepted(result *primitive.SendResult, err error) *primitive.SendResult {
	must(err, "send")
	check(result.Status == primitive.SendOK, "send status %v", result.Status)
	return result
}

// sync also sends a tag outside ASCII, which no consumer here asks for: the client hashes a tag's
// UTF-8 bytes where every other one hashes its UTF-16 units, so its filters never find such a tag.
func (r *round) sync() {
	for i, tag := range []string{"TagA", "TagB", "TagC", "标签", "ordered"} {
		body := fmt.Sprintf("sync-%d", i)
		result := r.accepted(r.producer.SendSync(context.Background(), r.message(body, tag)))
		check(result.MsgID != "" && result.OffsetMsgID != "", "ids of %v", result)
	}
}

func (r *round) async() {
	var group sync.WaitGroup
	errors := make(chan error, asyncCount)
	for i := 0; i < asyncCount; i++ {
		group.Add(1)
		err := r.producer.SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				if err == nil && result.Status != primitive.SendOK {
					err = fmt.Errorf("status %v", result.Status)
				}
				errors <- err
				group.Done()
			}, r.message(fmt.Sprintf("async-%d", i), "TagA"))
		must(err, "send without waiting")
	}
	group.Wait()
	for i := 0; i < asyncCount; i++ {
		must(<-errors, "answer to an async send")
	}
}

func (r *round) oneway() {
	for i := 0; i < 4; i++ {
		must(r.producer.SendOneWay(context.Background(),
			r.message(fmt.Sprintf("oneway-%d", i), "TagB")), "one-way send")
	}
}

func (r *round) batch() {
	var batch []*primitive.Message
	for i := 0; i < batchCount; i++ {
		batch = append(batch, r.message(fmt.Sprintf("batch-%d", i), "TagA"))
	}
	result := r.accepted(r.producer.SendSync(context.Background(), batch...))
	check(len(strings.Split(result.OffsetMsgID, ",")) == batchCount,
		"offset ids of a batch: %s", result.OffsetMsgID)
}

func (r *round) large() {
	body := strings.Repeat("a body that compresses well\n", largeSize/28)
	r.accepted(r.producer.SendSync(context.Background(), r.message(body, "TagC")))
}

func (r *round) consumer(group string, options ...consumer.Option) rocketmq.PushConsumer {
	options = append(options,
		consumer.WithNameServer([]string{*namesrv}),
		consumer.WithGroupName(group),
		consumer.WithInstance("go-"+group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithCredentials(keys))
	c, err := rocketmq.NewPushConsumer(options...)
	must(err, "new consumer")
	return c
}

// consume starts three groups at once, since each may need 20 s until it looks for its queues.
func (r *round) consume() {
	tagged, every, ordered := &sink{}, &sink{}, &sink{}
	tagC := r.consumer("GoTagG")
	must(tagC.Subscribe(r.topic, consumer.MessageSelector{
		Type: consumer.TAG, Expression: "TagA || TagB"}, tagged.take), "subscribe to tags")
	everyC := r.consumer("GoEveryG")
	must(everyC.Subscribe(r.topic, consumer.MessageSelector{}, every.take), "subscribe")
	orderC := r.consumer("GoOrderG", consumer.WithConsumerOrder(true))
	must(orderC.Subscribe(r.topic, consumer.MessageSelector{
		Type: consumer.TAG, Expression: "ordered"}, ordered.take), "subscribe in order")
	for _, c := range []rocketmq.PushConsumer{tagC, everyC, orderC} {
		must(c.Start(), "start a consumer")
	}
	until("every message arrives", func() bool { return every.size() >= len(r.sent) })
	wanted := map[string]bool{}
	for body, message := range r.sent {
		if tag := message.GetTags(); tag == "TagA" || tag == "TagB" {
			wanted[body] = true
		}
	}
	until("TagA and TagB arrive", func() bool { return tagged.size() >= len(wanted) })
	until("the ordered tag arrives", func() bool { return ordered.size() >= 1 })
	r.compare(every.all(), nil)
	r.compare(tagged.all(), wanted)
	for _, c := range []rocketmq.PushConsumer{tagC, everyC, orderC} {
		must(c.Shutdown(), "shut a consumer down")
	}
}

// compare asserts that the messages are those wanted (all that were sent when nil), each once.
func (r *round) compare(got []*primitive.MessageExt, wanted map[string]bool) {
	bodies := map[string]bool{}
	for _, message := range got {
		body := string(message.Body)
		name := nameOf(body)
		sent := r.sent[body]
		check(sent != nil, "%s was not sent", name)
		check(!bodies[body], "%s came twice", name)
		bodies[body] = true
		check(message.GetTags() == sent.GetTags(), "%s: tag %q", name, message.GetTags())
		check(message.GetKeys() == sent.GetKeys(), "%s: keys %q", name, message.GetKeys())
		check(message.GetProperty(propertyName) == propertyValue+name, "%s: property %q", name,
			message.GetProperty(propertyName))
	}
	if wanted == nil {
		check(len(bodies) == len(r.sent), "%d of %d arrived", len(bodies), len(r.sent))
		return
	}
	check(reflect.DeepEqual(bodies, wanted), "got %v, wanted %v", bodies, wanted)
}
