import { once } from 'node:events';
import { createServer } from 'node:net';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { formatAddress } from '../../shared/wire/addresses.js';

/** Throws PORT_UNAVAILABLE if a program listens at the port. `port`: 0: any free one. */
export async function requireFreePort(host: string, port: number): Promise<void> {
  if (port === 0) return;
  const server = createServer();
  try {
    await once(server.listen({ host, port }), 'listening');
  } catch (thrown) {
    // The daemon itself reports other faults of the address when it listens there.
    if (systemErrorCode(thrown) !== 'EADDRINUSE') return;
    const address = formatAddress(host, port);
    throw new OdmoeError('PORT_UNAVAILABLE', `a program listens at ${address}: if it is this daemon, stop it first`);
  } finally {
    server.close();
  }
}
