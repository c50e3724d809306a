import { ChannelCredentials, Client } from '@grpc/grpc-js';
import type { Socket } from 'node:net';
import type { Runtime, Timer } from '../base/runtime/runtime.js';
import { clientChannelOptions } from './channel-options.js';
import { channelCredentials } from './credentials.js';
import { CLOSE_GRACE_MS } from '../wire/limits.js';
import { living } from '../base/runtime/living.js';

export interface Channel {
  readonly client: Client;
  /** Running calls may end in order. A socket that is still open after CLOSE_GRACE_MS is destroyed. */
  close(): void;
}

/**
 * A separate channel to one peer. grpc-js never gives up a connection whose peer accepts it and then sends nothing (a stopped process does so),
 * not even when the client is closed. Each redial would add one more. So the channel records its sockets here.
 */
export function openChannel(
  address: string,
  runtime: Runtime,
  windowBytes: number,
  receiveLimitBytes: number,
): Channel {
  const credentials = new SocketKeepingCredentials(channelCredentials());
  const client = new Client(address, credentials, clientChannelOptions(windowBytes, receiveLimitBytes));
  const end = living().begin('channel', address);
  return {
    client,
    close: () => {
      end();
      client.close();
      credentials.close(runtime);
    },
  };
}

type SecureConnector = ReturnType<ChannelCredentials['_createSecureConnector']>;

/** Passes everything on to other credentials and records the sockets that are connected. */
class SocketKeepingCredentials extends ChannelCredentials {
  private readonly sockets = new Set<Socket>();
  private grace: Timer | null = null;
  private destroyed = false;

  constructor(private readonly inner: ChannelCredentials) {
    super();
  }

  /** Ends the channel for new calls. Sockets that are still open after the grace time are destroyed, and so are sockets that connect after it. */
  close(runtime: Runtime): void {
    this.grace ??= runtime.after(CLOSE_GRACE_MS, () => this.destroySockets());
    this.grace.unref();
    if (this.sockets.size === 0) this.destroySockets();
  }

  private destroySockets(): void {
    this.destroyed = true;
    this.grace?.cancel();
    for (const socket of this.sockets) socket.destroy();
  }

  override _isSecure(): boolean {
    return this.inner._isSecure();
  }

  override _equals(other: ChannelCredentials): boolean {
    return this === other;
  }

  override _createSecureConnector(...args: Parameters<ChannelCredentials['_createSecureConnector']>): SecureConnector {
    const connector = this.inner._createSecureConnector(...args);
    return {
      connect: (socket) => {
        this.keep(socket);
        return connector.connect(socket);
      },
      waitForReady: () => connector.waitForReady(),
      getCallCredentials: () => connector.getCallCredentials(),
      destroy: () => {
        connector.destroy();
      },
    };
  }

  private keep(socket: Socket): void {
    this.sockets.add(socket);
    socket.once('close', () => {
      this.sockets.delete(socket);
      if (this.grace !== null && this.sockets.size === 0) this.destroySockets();
    });
    // The connection came after the channel was destroyed, so no code needs it.
    if (this.destroyed) socket.destroy();
  }
}
