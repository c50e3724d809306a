import { InvalidArgumentError } from 'commander';

/** Default address of main's HTTP API. */
export const DEFAULT_HTTP_ADDRESS = { host: '127.0.0.1', port: 7680 } as const;

export const HTTP_ADDRESS_ERROR = 'HOST:PORT, as in 127.0.0.1:7680 (port 0: any free one), or off';

const HTTP_ADDRESS_PATTERN = /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9][A-Za-z0-9._-]*)):(\d{1,5})$/;
const HIGHEST_PORT = 65_535;

export interface HttpAddress {
  /** Host name or IP address, without brackets. */
  host: string;
  port: number;
}

/** Parses main.http and --http; null: the text is neither an address nor "off". */
export function parseHttpAddress(value: string): HttpAddress | 'off' | null {
  if (value === 'off') return 'off';
  const match = HTTP_ADDRESS_PATTERN.exec(value);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  return host === undefined || port > HIGHEST_PORT ? null : { host, port };
}

/** Parser of --http; throws commander's InvalidArgumentError. */
export function httpAddressFlag(value: string): HttpAddress | 'off' {
  const parsed = parseHttpAddress(value);
  if (parsed !== null) return parsed;
  throw new InvalidArgumentError(`Give ${HTTP_ADDRESS_ERROR}.`);
}
