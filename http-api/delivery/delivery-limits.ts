import type { WaitRuntime } from '../../shared/base/runtime/peer-wait.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { SLOW_READER_LIMIT_MS } from '../../shared/wire/limits.js';

/** Times between signs of life to a client, and the time that main waits for a client. */
export interface DeliveryLimits {
  /** Silence on a stream after which a sign of life is sent. */
  keepAliveMs: number;
  /** Time of an answer that is not streamed until its headers are sent, and then between two newlines. */
  bodyHeadersMs: number;
  bodyNewlineMs: number;
  /** The connection of a client that reads nothing for this time is closed. */
  slowReaderMs: number;
}

/** Common proxies close connections that are silent for 60 s; Node's fetch waits 300 s for headers. */
export const DELIVERY_LIMITS: DeliveryLimits = {
  keepAliveMs: 10_000,
  bodyHeadersMs: 30_000,
  bodyNewlineMs: 15_000,
  slowReaderMs: SLOW_READER_LIMIT_MS,
};

/** Settings and parts that all deliveries of one HTTP API share. */
export interface DeliverySetting {
  runtime: WaitRuntime;
  limits: DeliveryLimits;
  log: Logger;
}
