package dashboard_test

import (
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/framework/status/dashboard"
)

func ExampleOf() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	board, err := dashboard.New(dashboard.Of(client, "billing"))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /dashboard/", http.StripPrefix("/dashboard", board))
	server := &http.Server{Addr: ":8080", Handler: mux}
	server.RegisterOnShutdown(board.Close) // its streams do not end by themselves
}
