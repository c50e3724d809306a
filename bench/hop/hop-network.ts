import type { NodeSettings } from '../../shared/settings/node-settings.js';

/** The daemons' defaults, so that keepalive costs the same here. */
export const HOP_NETWORK: NodeSettings['network'] = {
  keepaliveIntervalMs: 500,
  keepaliveTimeoutMs: 700,
  executeTimeoutMs: 30_000,
  reconnectDelayMs: 500,
};
