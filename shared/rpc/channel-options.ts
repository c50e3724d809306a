import type { ChannelOptions } from '@grpc/grpc-js';
import type { NodeSettings } from '../config/node-settings.js';
import { CONCURRENT_STREAMS_LIMIT, MESSAGE_SIZE_LIMIT_BYTES } from './limits.js';

const MESSAGE_SIZES = {
  'grpc.max_send_message_length': MESSAGE_SIZE_LIMIT_BYTES,
  'grpc.max_receive_message_length': MESSAGE_SIZE_LIMIT_BYTES,
};

/**
 * Options of a channel to a peer. One connection a channel (local subchannel pool), nothing retried behind our back, no
 * look-ups beside the address. `windowBytes`: what a peer may have on the way to us before it waits. Without `network` (short calls that have a deadline) there is no keepalive.
 */
export function clientChannelOptions(network: NodeSettings['network'] | null, windowBytes: number): ChannelOptions {
  return {
    ...MESSAGE_SIZES,
    'grpc-node.flow_control_window': windowBytes,
    'grpc.enable_retries': 0,
    'grpc.enable_channelz': 0,
    'grpc.use_local_subchannel_pool': 1,
    'grpc.service_config_disable_resolution': 1,
    'grpc.enable_http_proxy': 0,
    ...(network === null ? {} : keepalive(network)),
  };
}

export function serverOptions(network: NodeSettings['network']): ChannelOptions {
  return {
    ...MESSAGE_SIZES,
    'grpc.enable_channelz': 0,
    'grpc.max_concurrent_streams': CONCURRENT_STREAMS_LIMIT,
    ...keepalive(network),
  };
}

/** A peer that does not answer a ping within the timeout counts as gone: HTTP/2 alone never notices a stopped one. */
function keepalive(network: NodeSettings['network']): ChannelOptions {
  return {
    'grpc.keepalive_time_ms': network.keepaliveIntervalMs,
    'grpc.keepalive_timeout_ms': network.keepaliveTimeoutMs,
    'grpc.keepalive_permit_without_calls': 1,
  };
}
