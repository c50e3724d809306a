import { isSocketAddress } from '../wire/addresses.js';
import { type ChannelCredentials, Client } from '@grpc/grpc-js';
import type { Socket } from 'node:net';
import { assertInvariant } from '../base/errors/assert-invariant.js';
import type { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Runtime, Timer } from '../base/runtime/runtime.js';
import { clientChannelOptions } from './channel-options.js';
import { channelSecurity } from './credentials.js';
import type { MethodRules } from './methods.js';
import type { ClusterTrust } from './trust/cluster-trust.js';
import { DialledPeer } from './trust/dialled-peer.js';
import type { CertifiedCaller } from './trust/peer-role.js';
import { CLOSE_GRACE_MS, REMOVAL_GRACE_MS } from '../wire/limits.js';
import { living } from '../base/runtime/living.js';

export interface Channel {
  readonly client: Client;
  /** The peer that the certificate of the other end names; null: the cluster has no authority, or the channel has no connection yet. */
  peer(): CertifiedCaller | null;
  /** `refused`: called when a newer roster does not admit the peer any more; its connections end soon after. */
  onRefused(refused: (reason: OdmoeError) => void): void;
  /** Running calls may end in order. A socket that is still open after CLOSE_GRACE_MS is destroyed. */
  close(): void;
}

/**
 * A separate channel to one peer, for methods with these rules. grpc-js never gives up a connection whose peer accepts it and then sends nothing (a
 * stopped process does so), not even when the client is closed. Each redial would add one more. So the channel records its sockets here.
 */
export function openChannel(
  address: string,
  runtime: Runtime,
  { windowBytes, receiveLimitBytes, servedBy }: Pick<MethodRules, 'windowBytes' | 'receiveLimitBytes' | 'servedBy'>,
  trust: ClusterTrust | null,
): Channel {
  const sockets = new ChannelSockets();
  // A socket of this host needs no certificate: its file lets its owner in.
  const dialled = trust === null || isSocketAddress(address) ? null : new DialledPeer(trust);
  const { credentials, options } = channelSecurity(dialled, servedBy);
  recordSockets(credentials, (socket) => sockets.add(socket));
  const client = new Client(address, credentials, {
    ...clientChannelOptions(windowBytes, receiveLimitBytes),
    ...options,
  });
  const end = living().begin('channel', address);
  return {
    client,
    peer: () => dialled?.peer ?? null,
    onRefused: (refused) => {
      dialled?.watch((reason) => {
        refused(reason);
        sockets.endSoon(runtime);
      });
    },
    close: () => {
      end();
      dialled?.stop();
      client.close();
      sockets.close(runtime);
    },
  };
}

/**
 * Calls `record` with each socket that a channel with these credentials connects. grpc-js makes the socket itself, and no public way leads to it
 * (its issues 1660 and 2359 ask for one), so this replaces one internal method. These public ways were looked at:
 * - `Client.close`, `Channel.close`, and what `channelOverride` and `channelFactoryOverride` may wrap: they end the HTTP/2 session in order, and
 *   that waits for the peer for ever.
 * - No option limits the time of connecting; `grpc.initial_reconnect_backoff_ms` and `grpc.max_reconnect_backoff_ms` concern failed attempts.
 * - `grpc.keepalive_time_ms` begins after the peer's first answer, and counts a standstill of this process as the peer's silence.
 * - `grpc.client_idle_timeout_ms` ends the session as `Client.close` does.
 * - channelz names the addresses of sockets, and the resolvers and load balancers of `experimental` see addresses, too.
 * - `ChannelCredentials.createFromSecureContext` and certificate providers see certificates alone.
 */
function recordSockets(credentials: ChannelCredentials, record: (socket: Socket) => void): void {
  assertInvariant(
    typeof credentials._createSecureConnector === 'function',
    'grpc-js connects a channel by the method _createSecureConnector of its credentials, which shared/transport/channel.ts replaces.',
  );
  const createConnector = credentials._createSecureConnector.bind(credentials);
  credentials._createSecureConnector = (...asked) => {
    const connector = createConnector(...asked);
    const connect = connector.connect.bind(connector);
    connector.connect = (socket) => {
      record(socket);
      return connect(socket);
    };
    return connector;
  };
}

/** The sockets of one channel. */
class ChannelSockets {
  private readonly open = new Set<Socket>();
  private grace: Timer | null = null;
  private destroyed = false;

  add(socket: Socket): void {
    this.open.add(socket);
    socket.once('close', () => {
      this.open.delete(socket);
      if (this.grace !== null && this.open.size === 0) this.destroy();
    });
    // The connection came after the channel was destroyed, so no code needs it.
    if (this.destroyed) socket.destroy();
  }

  /** The channel takes no new calls. Sockets that are still open after the grace time are destroyed, and so are sockets that connect after it. */
  close(runtime: Runtime): void {
    this.grace ??= runtime.after(CLOSE_GRACE_MS, () => this.destroy());
    this.grace.unref();
    if (this.open.size === 0) this.destroy();
  }

  /** The peer is not admitted any more: what it may still read are the words that end its calls. */
  endSoon(runtime: Runtime): void {
    runtime.after(REMOVAL_GRACE_MS, () => this.destroyOpen()).unref();
  }

  private destroy(): void {
    this.destroyed = true;
    this.grace?.cancel();
    this.destroyOpen();
  }

  private destroyOpen(): void {
    for (const socket of this.open) socket.destroy();
  }
}
