import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { operatorSocketPath } from '../../shared/base/files/state-directory.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { NodeTrust } from '../../engine/trust/node-trust.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RpcServer, RpcServerOptions } from '../../shared/transport/transport.js';
import type { TrustStatus } from '../../shared/wire/messages.js';
import { EnrolmentDesk } from './enrolment-desk.js';
import { EnrolmentDoor } from './enrolment-door.js';
import { keysService, startMainKeys } from './keys-service.js';
import { StoredEnrolmentState } from './stored-enrolment-state.js';

interface CertifiedMain {
  readonly trust: NodeTrust;
  readonly runtime: Runtime;
}

/** Main's part of letting machines into a cluster with an authority: the desk that decides, the door for machines, the socket for operators. */
export class Admission {
  readonly desk: EnrolmentDesk;
  private readonly door: EnrolmentDoor;
  private readonly keys: ReturnType<typeof startMainKeys>;
  private readonly socketPath: string;
  private server: Pick<RpcServer, 'connectionsFrom'> | null = null;

  private readonly runtime: Runtime;

  private constructor(state: StoredEnrolmentState, { trust, runtime }: CertifiedMain, socketPath: string, log: Logger) {
    this.runtime = runtime;
    this.desk = new EnrolmentDesk(state, runtime);
    if (this.desk.clockIsSetBack) {
      log.warn(
        'the clock of this host was set back: join tokens are judged by the time since its start, until the clock is right again',
      );
    }
    this.door = new EnrolmentDoor(this.desk, runtime, log);
    this.keys = startMainKeys({ desk: this.desk, trust, runtime }, log);
    this.socketPath = socketPath;
  }

  /** Null: the cluster has no authority. */
  static open(
    { stateDirectory }: Pick<NodeSettings, 'stateDirectory'>,
    { authority, trust, runtime }: NodeEnvironment,
    log: Logger,
  ): Admission | null {
    if (authority === null) return null;
    const own = requirePresent(trust, 'A main with an authority has certified itself.');
    const state = new StoredEnrolmentState(authority, stateDirectory, own, runtime);
    return new Admission(state, { trust: own, runtime }, operatorSocketPath(stateDirectory), log);
  }

  /** The ways to main that a cluster with an authority has. */
  get ways(): Pick<RpcServerOptions, 'enrol' | 'operatorSocket' | 'keys'> {
    const { desk, door, socketPath, runtime } = this;
    return { enrol: (socket) => door.take(socket), operatorSocket: socketPath, keys: keysService(desk, runtime) };
  }

  /** Main's server is open. */
  countConnectionsOf(server: Pick<RpcServer, 'connectionsFrom'>): void {
    this.server = server;
  }

  /** The number of connections that the node of this id has opened to main. */
  connectionsFrom(id: string): number {
    return this.server?.connectionsFrom(id) ?? 0;
  }

  get status(): TrustStatus {
    return { words: this.desk.words, waiting: this.desk.waitingMachines() };
  }

  /** Tells main's user who gets in. */
  get notice(): string {
    return `takes TLS connections of "${this.desk.cluster}" alone (words: ${this.desk.words}); machines that want in: odmoe node list`;
  }

  /** Ends the connections of machines that ask, and renews no key any more. */
  async stop(): Promise<void> {
    this.door.close();
    await this.keys.stop();
  }
}
