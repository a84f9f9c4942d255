module go_tls

go 1.21
