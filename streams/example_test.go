package streams_test

import (
	"fmt"
	"log"

	"github.com/hanbeon/hanbeon/streams"
	"github.com/hanbeon/hanbeon/streams/serde"
)

// A topology with a type of one's own: its serde is named where it comes in.
func Example() {
	type Order struct {
		Customer string
		Cents    int64
	}
	b := streams.NewBuilder()
	orders := streams.Stream(b, "orders", streams.Consumed[string, Order]{Value: serde.JSON[Order]()})
	byCustomer := streams.GroupBy(orders, func(_ string, o Order) string { return o.Customer })
	totals := streams.Aggregate(byCustomer, "totals", func() int64 { return 0 },
		func(_ string, o Order, total int64) int64 { return total + o.Cents })
	totals.ToStream().To("totals")
	topology, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}

	app, err := streams.New(topology, streams.Config{
		ApplicationID: "totals",
		Brokers:       []string{"127.0.0.1:9092"},
		Guarantee:     streams.ExactlyOnceV2,
		StateDir:      "/var/lib/totals",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.State()) // app.Run(ctx) starts it
	// Output: CREATED
}
