import type { NodeSettings } from '../../shared/settings/node-settings.js';

export const HOP_CLUSTER = 'bench';

/** The daemons' defaults, so that keepalive costs the same here. */
export const HOP_NETWORK: NodeSettings['network'] = {
  keepaliveIntervalMs: 500,
  keepaliveTimeoutMs: 700,
  executeTimeoutMs: 30_000,
  reconnectDelayMs: 500,
};

/** The argument by which an echo process reads the trust of its second server from the first line of its standard input. */
export const TRUSTED_ARGUMENT = 'trusted';

/** The first line of an echo process's standard output. */
export interface EchoAddresses {
  tcpPort: number;
  rpcAddress: string;
  /** Null: it has got no trust. */
  tlsAddress: string | null;
}

/** Its answer to every further line of standard input. */
export interface EchoUsage {
  /** Processor time of all its threads since its start, in microseconds. */
  processorUs: number;
}
