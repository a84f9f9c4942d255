"""The client: producers and consumers of any RocketMQ broker from 4.9 on, in pure Python."""
