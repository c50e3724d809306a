import assert from 'node:assert/strict';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { type JoinedCluster, joinByToken } from '../../engine/trust/enrol.js';
import { keyToCertify, storeIdentity } from '../../engine/trust/identity-files.js';
import type { NodeTrust } from '../../engine/trust/node-trust.js';
import { type OpenTrust, openNodeTrust } from '../../engine/trust/open-node-trust.js';
import { EnrolmentDesk } from '../../main-node/enrolment/enrolment-desk.js';
import { EnrolmentDoor } from '../../main-node/enrolment/enrolment-door.js';
import { keysService } from '../../main-node/enrolment/keys-service.js';
import { type ConnectedNodes, OperatorService } from '../../main-node/enrolment/operator-service.js';
import { StoredEnrolmentState } from '../../main-node/enrolment/stored-enrolment-state.js';
import { operatorSocketPath } from '../../shared/base/files/state-directory.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { RpcServer, RpcServerOptions } from '../../shared/transport/transport.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };

type MoreServices = (desk: EnrolmentDesk, connectionsFrom: (id: string) => number) => Partial<RpcServerOptions>;

/** The part of a main that lets machines in, with the files of its host, as its start opens them. */
export class StoredMain {
  private constructor(
    readonly desk: EnrolmentDesk,
    private readonly door: EnrolmentDoor,
    private readonly opened: OpenTrust,
    readonly server: RpcServer,
  ) {}

  /** Starts the main "box" of the cluster, whose authority is in the directory. */
  static async start(
    stateDirectory: string,
    cluster = 'home',
    services: MoreServices = () => ({}),
    port = 0,
  ): Promise<StoredMain> {
    const log = new Lines();
    const node = { role: 'main', id: 'box', cluster, stateDirectory } as const;
    const opened = await openNodeTrust(node, RUNTIME.wallMs(), log);
    assert.ok(opened !== null);
    assert.ok(opened.authority !== null);
    const state = new StoredEnrolmentState(opened.authority, stateDirectory, opened.trust, RUNTIME);
    const desk = new EnrolmentDesk(state, RUNTIME);
    const door = new EnrolmentDoor(desk, RUNTIME, log);
    const connectionsFrom = (id: string): number => server.connectionsFrom(id);
    const server: RpcServer = await new GrpcTransport(RUNTIME, null, opened.trust).serve({
      host: '127.0.0.1',
      port,
      network: NETWORK,
      log,
      node: { identify: () => plainIdentity({ id: 'box', role: 'ROLE_MAIN', cluster, address: server.address }) },
      enrol: (socket) => door.take(socket),
      ...services(desk, connectionsFrom),
    });
    return new StoredMain(desk, door, opened, server);
  }

  get address(): string {
    return this.server.address;
  }

  get trust(): NodeTrust {
    return this.opened.trust;
  }

  async stop(): Promise<void> {
    this.door.close();
    await this.server.stop();
    await this.opened.saved();
  }
}

/** Makes the authority of a cluster, and starts its main. */
export async function startNewMain(
  stateDirectory: string,
  cluster = 'home',
  services?: MoreServices,
): Promise<StoredMain> {
  await createCluster(stateDirectory, cluster);
  return StoredMain.start(stateDirectory, cluster, services);
}

/** The nodes of a main without connections. */
export const NOT_CONNECTED: ConnectedNodes = { connectionsOf: () => 0, drain: () => null };

/** Main's service for operators, and its socket. */
export function operatorServices(stateDirectory: string, log = new Lines()): MoreServices {
  return (desk, connectionsFrom) => ({
    operator: new OperatorService(desk, { ...NOT_CONNECTED, connectionsOf: connectionsFrom }, log),
    keys: keysService(desk, RUNTIME),
    operatorSocket: operatorSocketPath(stateDirectory),
  });
}

/** Lets a machine join whose files are in `stateDirectory`. */
export async function joinWithFiles(
  address: string,
  token: string,
  { id, role, stateDirectory }: { id: string; role: Exclude<PeerRole, 'main'>; stateDirectory: string },
): Promise<JoinedCluster> {
  const machine = { id, role, key: await keyToCertify(stateDirectory, id) };
  const joined = await joinByToken(address, token, machine, { runtime: RUNTIME });
  await storeIdentity(stateDirectory, id, joined);
  return joined;
}
