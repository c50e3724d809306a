import type { WaitRuntime } from '../../shared/base/runtime/peer-wait.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { SLOW_READER_LIMIT_MS } from '../../shared/wire/limits.js';

/** How long a client waits for a sign of life, and main for a client. */
export interface DeliveryLimits {
  /** Silence on a stream after which it is kept alive. */
  keepAliveMs: number;
  /** How long an answer that is not streamed may take before its headers are sent, and then between newlines. */
  bodyHeadersMs: number;
  bodyNewlineMs: number;
  /** A client that takes nothing for so long is given up. */
  slowReaderMs: number;
}

/** Common proxies close what is silent for 60 s; Node's fetch waits 300 s for headers. */
export const DELIVERY_LIMITS: DeliveryLimits = {
  keepAliveMs: 10_000,
  bodyHeadersMs: 30_000,
  bodyNewlineMs: 15_000,
  slowReaderMs: SLOW_READER_LIMIT_MS,
};

/** What deliveries of one door share. */
export interface DeliverySetting {
  runtime: WaitRuntime;
  limits: DeliveryLimits;
  log: Logger;
}
