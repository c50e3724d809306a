import type { ChannelOptions } from '@grpc/grpc-js';
import {
  CLIENT_CHECK_INTERVAL_MS,
  CLIENT_CHECK_TIMEOUT_MS,
  CONCURRENT_STREAMS_LIMIT,
  MESSAGE_SIZE_LIMIT_BYTES,
} from '../wire/limits.js';

/** `receiveLimitBytes`: largest message that is received. grpc-js collects a message of up to this size before our code sees it. */
function messageSizes(receiveLimitBytes: number): ChannelOptions {
  return {
    'grpc.max_send_message_length': MESSAGE_SIZE_LIMIT_BYTES,
    'grpc.max_receive_message_length': receiveLimitBytes,
  };
}

/**
 * Options of a channel to a peer: one connection a channel (local subchannel pool), no hidden retries, no look-ups other than the address.
 * `windowBytes`: bytes that a peer may have on the way to us before it must wait. No option checks that the peer still runs: a PeerKeepalive
 * does that, or a waitForPeer ends the call.
 */
export function clientChannelOptions(windowBytes: number, receiveLimitBytes: number): ChannelOptions {
  return {
    ...messageSizes(receiveLimitBytes),
    'grpc-node.flow_control_window': windowBytes,
    'grpc.enable_retries': 0,
    'grpc.enable_channelz': 0,
    'grpc.use_local_subchannel_pool': 1,
    'grpc.service_config_disable_resolution': 1,
    'grpc.enable_http_proxy': 0,
  };
}

/**
 * A server frees the resources of a client that is gone. It waits long for that, because a client may be busy. An opener of a stream notices
 * within a second that the other end is gone.
 */
export function serverOptions(receiveLimitBytes: number): ChannelOptions {
  return {
    ...messageSizes(receiveLimitBytes),
    'grpc.enable_channelz': 0,
    'grpc.max_concurrent_streams': CONCURRENT_STREAMS_LIMIT,
    'grpc.keepalive_time_ms': CLIENT_CHECK_INTERVAL_MS,
    'grpc.keepalive_timeout_ms': CLIENT_CHECK_TIMEOUT_MS,
    'grpc.keepalive_permit_without_calls': 1,
  };
}
