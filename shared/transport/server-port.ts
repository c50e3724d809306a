/** The port of a daemon's server. It hands connections to the gRPC server, and in a cluster with an authority only those of admitted peers. */
import { type ConnectionInjector, type Server, ServerCredentials } from '@grpc/grpc-js';
import { createServer, type Server as TcpServer, type Socket } from 'node:net';
import { createServer as createTlsServer, type Server as TlsServer, type TLSSocket } from 'node:tls';
import { assertInvariant } from '../base/errors/assert-invariant.js';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Logger } from '../base/log/logger.js';
import { RecentMap } from '../base/runtime/recent-map.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { formatAddress } from '../wire/addresses.js';
import { CONNECTIONS_LIMIT, REMOVAL_GRACE_MS, TLS_HANDSHAKE_TIMEOUT_MS, TLS_HANDSHAKES_LIMIT } from '../wire/limits.js';
import { ConnectionCount } from './connection-count.js';
import type { AuthenticatedCall } from './server-handlers.js';
import { countedName } from './peer-context.js';
import { AdmittedSockets } from './admitted-sockets.js';
import { admittedPeer } from './trust/certified-socket.js';
import { StandingPeer } from './trust/standing-peer.js';
import type { CertifiedPeer } from './trust/certificate.js';
import type { ClusterTrust } from './trust/cluster-trust.js';
import type { CertifiedCaller } from './trust/peer-role.js';
import { isRefusal } from './trust/refusal.js';
import { Refuser } from './refuser.js';
import { isPlaintextPeer } from './tls-mismatch.js';
import { ENROLMENT_PROTOCOL, GRPC_PROTOCOL, TEXT_PROTOCOL, tlsOptions } from './trust/tls-options.js';

export interface ServerPort {
  readonly port: number;
  /** The peer of the call's certificate; null: the cluster has no authority. Throws CANCELLED if the peer has gone. */
  callerOf(call: AuthenticatedCall): CertifiedCaller | null;
  /** The number of open connections of the peer whose certificate names this id. */
  connectionsFrom(id: string): number;
  /** Takes no new connections. Those that the gRPC server has got are its own to end. */
  close(): void;
}

export interface PortOptions {
  readonly host: string;
  readonly port: number;
  readonly log: Logger;
  /** null: the cluster has no authority, and everybody is let in. */
  readonly trust: ClusterTrust | null;
  /** Takes the connections of machines that ask to be let in; left out: this daemon lets nobody in. */
  readonly enrol?: ((socket: TLSSocket) => void) | undefined;
  /** Ends the streams of a peer that is not admitted any more. Its connections end soon after. */
  readonly endStreamsOf: (peer: CertifiedPeer, reason: OdmoeError) => void;
}

/** Throws PORT_UNAVAILABLE. */
export async function openServerPort(server: Server, options: PortOptions, runtime: Runtime): Promise<ServerPort> {
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const { trust } = options;
  if (trust !== null) return openTrustedPort(injector, { ...options, trust }, runtime);
  const connections = new ConnectionCount(CONNECTIONS_LIMIT);
  const listener = createServer((socket) => {
    const host = socket.remoteAddress ?? '';
    if (!connections.begin(host)) {
      socket.destroy();
      return;
    }
    socket.once('close', () => connections.end(host));
    injector.injectConnection(socket);
  });
  const port = await listen(listener, options);
  return { port, callerOf: () => null, connectionsFrom: () => 0, close: () => void listener.close() };
}

/** OpenSSL's code for a handshake whose first bytes are a request of HTTP/1 (GET, POST, HEAD, PUT, CONNECT). */
const PLAIN_HTTP_REQUEST = 'ERR_SSL_HTTP_REQUEST';

const SPEAKS_NO_TLS =
  'it speaks no TLS: a daemon of release 0.2 or older, which has to be updated and then joins, or one that was started with --insecure, which has to leave that out';
/** Most hosts of which it is remembered that this was logged. Each comes back again and again. */
const PLAINTEXT_HOSTS_KEPT_LIMIT = 256;

/** One connection in the counts of a port with trust. */
interface Counted {
  /** The connection itself, below TLS. */
  readonly socket: Socket;
  /** The host, and once the peer is admitted the name of its certificate. */
  name: string;
  isInHandshake: boolean;
}

type TrustedOptions = PortOptions & { readonly trust: ClusterTrust };

async function openTrustedPort(
  injector: ConnectionInjector,
  options: TrustedOptions,
  runtime: Runtime,
): Promise<ServerPort> {
  const trusted = new TrustedPort(injector, options, runtime);
  try {
    trusted.port = await listen(trusted.tls, options);
    return trusted;
  } catch (thrown) {
    trusted.close();
    throw thrown;
  }
}

/** A port at which TLS shows who a peer is. */
class TrustedPort implements ServerPort {
  readonly tls: TlsServer;
  private readonly admitted = new AdmittedSockets();
  private readonly connections = new ConnectionCount(CONNECTIONS_LIMIT);
  private readonly handshakes = new ConnectionCount(TLS_HANDSHAKES_LIMIT);
  /** By the peer's address. */
  private readonly counted = new Map<string, Counted>();
  private readonly refuser: Refuser;
  /** Hosts of peers without TLS. */
  private readonly plaintextHosts = new RecentMap<string, true>(PLAINTEXT_HOSTS_KEPT_LIMIT);
  private readonly unwatch: () => void;
  port = 0;

  constructor(
    private readonly injector: ConnectionInjector,
    private readonly options: TrustedOptions,
    private readonly runtime: Runtime,
  ) {
    const { trust, enrol } = options;
    this.refuser = new Refuser(runtime);
    this.tls = createTlsServer({
      ...tlsOptions(trust),
      requestCert: true,
      // A refused peer must get words, so this class looks at its certificate, and TLS does not.
      rejectUnauthorized: false,
      // Nothing is served in HTTP/1.1: who offers only that gets words in place of an alert.
      ALPNProtocols: [GRPC_PROTOCOL, ...(enrol === undefined ? [] : [ENROLMENT_PROTOCOL]), TEXT_PROTOCOL],
      handshakeTimeout: TLS_HANDSHAKE_TIMEOUT_MS,
    });
    this.tls.prependListener('connection', (socket: Socket) => this.beginHandshake(socket));
    this.tls.on('secureConnection', (socket) => this.take(socket));
    this.tls.on('tlsClientError', (error, socket) => this.handshakeFailed(error, socket));
    this.unwatch = trust.watch(() => this.trustChanged());
  }

  callerOf(call: AuthenticatedCall): CertifiedCaller {
    const fingerprint = call.getAuthContext().sslPeerCertificate?.fingerprint256;
    const peer = fingerprint === undefined ? null : this.admitted.peerOf(fingerprint);
    if (peer === null) throw new OdmoeError('CANCELLED', 'the peer has gone');
    return peer;
  }

  connectionsFrom(id: string): number {
    return this.admitted.countOf(id);
  }

  close(): void {
    this.unwatch();
    this.tls.close();
    this.refuser.close();
  }

  private beginHandshake(socket: Socket): void {
    const host = socket.remoteAddress ?? '';
    if (!this.connections.begin(host)) {
      socket.destroy();
      return;
    }
    const counted: Counted = { socket, name: host, isInHandshake: this.handshakes.begin(host) };
    const key = placeOf(socket);
    this.counted.set(key, counted);
    socket.once('close', () => {
      this.endHandshake(counted, host);
      this.connections.end(counted.name);
      if (this.counted.get(key) === counted) this.counted.delete(key);
    });
    if (!counted.isInHandshake) socket.destroy();
  }

  private handshakeFailed({ message, code }: NodeJS.ErrnoException, socket: TLSSocket): void {
    const peer = socket.remoteAddress ?? '';
    this.options.log.debug('a connection ended in its TLS handshake', { peer, reason: message });
    if (code !== PLAIN_HTTP_REQUEST && isPlaintextPeer(code ?? '')) this.logPlaintext(peer);
    const counted = this.counted.get(placeOf(socket));
    // Node only reports that the time is over: the socket would keep its place among the handshakes for ever.
    socket.destroy();
    if (code !== PLAIN_HTTP_REQUEST || counted === undefined) return;
    this.endHandshake(counted, counted.name);
    this.refuser.refuseInText(counted.socket, '400 Bad Request');
  }

  private logPlaintext(host: string): void {
    if (this.plaintextHosts.get(host) === true) return;
    this.plaintextHosts.set(host, true);
    this.options.log.warn('refused a connection', { peer: host, reason: SPEAKS_NO_TLS });
  }

  private endHandshake(counted: Counted, host: string): void {
    if (!counted.isInHandshake) return;
    counted.isInHandshake = false;
    this.handshakes.end(host);
  }

  /** Counts an admitted connection by its certificate: daemons behind one address get a share each, and one daemon with many addresses gets one. */
  private countAdmitted(counted: Counted, caller: CertifiedPeer): boolean {
    const name = countedName({ host: counted.name, caller });
    if (!this.connections.move(counted.name, name)) return false;
    counted.name = name;
    return true;
  }

  private take(socket: TLSSocket): void {
    const counted = this.counted.get(placeOf(socket));
    if (counted === undefined) {
      // The peer went away while its handshake ended.
      socket.destroy();
      return;
    }
    this.endHandshake(counted, counted.name);
    socket.on('error', () => undefined);
    const { trust, enrol, log } = this.options;
    if (socket.alpnProtocol === ENROLMENT_PROTOCOL && enrol !== undefined) {
      enrol(socket);
      return;
    }
    if (socket.alpnProtocol !== GRPC_PROTOCOL) {
      const reason = 'it did not ask for HTTP/2, which gRPC needs';
      log.warn('refused a connection', { peer: socket.remoteAddress ?? '', reason });
      this.refuser.refuseInText(socket, '421 Misdirected Request');
      return;
    }
    const peer = admittedPeer(socket, trust);
    if (isRefusal(peer)) {
      log.warn('refused a connection', { peer: socket.remoteAddress ?? '', reason: peer.refusal });
      this.refuser.refuse(socket, peer.refusal);
      return;
    }
    if (!this.countAdmitted(counted, peer)) {
      const { ofHost } = CONNECTIONS_LIMIT;
      log.warn('refused a connection', { peer: peer.id, reason: `it has ${ofHost} connections, the most of one peer` });
      socket.destroy();
      return;
    }
    this.admitted.add(socket, new StandingPeer(peer, trust));
    this.injector.injectConnection(socket);
  }

  /** The own certificate may be a new one, and peers may have been removed. */
  private trustChanged(): void {
    const { trust, endStreamsOf } = this.options;
    this.tls.setSecureContext(tlsOptions(trust));
    for (const { socket, peer, refusal } of this.admitted.refused()) {
      endStreamsOf(peer, new OdmoeError('TRUST_REFUSED', refusal));
      this.runtime.after(REMOVAL_GRACE_MS, () => socket.destroy()).unref();
    }
  }
}

function placeOf({ remoteAddress = '', remotePort = 0 }: Socket): string {
  return formatAddress(remoteAddress, remotePort);
}

/** Resolves with the port. Throws PORT_UNAVAILABLE. */
async function listen(listener: TcpServer, { host, port }: Pick<PortOptions, 'host' | 'port'>): Promise<number> {
  return new Promise((resolve, reject) => {
    listener.once('error', (error: NodeJS.ErrnoException) => {
      const reason = unavailableBecause(error.code ?? error.message);
      reject(
        new OdmoeError('PORT_UNAVAILABLE', `cannot listen on ${formatAddress(host, port)}: ${reason}`, {
          cause: error,
        }),
      );
    });
    listener.listen({ host, port, exclusive: true }, () => {
      const address = listener.address();
      assertInvariant(address !== null && typeof address === 'object', 'A TCP server that listens has a port.');
      resolve(address.port);
    });
  });
}

function unavailableBecause(code: string): string {
  switch (code) {
    case 'EADDRINUSE':
      return 'the port is in use; is another daemon running? stop it, or choose another --port';
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return 'this machine has no such address; give one of its own as --host, or 0.0.0.0 for all of them';
    case 'EACCES':
      return 'ports below 1024 need more rights; choose a higher --port';
    default:
      return `${code}; try again, or choose another --port or --host`;
  }
}
