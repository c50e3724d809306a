import type { RosterEntry } from '../../engine/trust/roster.js';
import type { TokenLine } from '../../engine/trust/token-book.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import type { Services } from '../../shared/transport/served-methods.js';
import { isPeerRole, PEER_ROLES } from '../../shared/transport/trust/peer-role.js';
import type {
  AcceptReply,
  AcceptRequest,
  CreateTokenReply,
  CreateTokenRequest,
  DrainedNode,
  DrainReply,
  DrainRequest,
  JoinTokenLine,
  ListedNode,
  ListNodesReply,
  ListTokensReply,
  RemoveNodeReply,
  RemoveNodeRequest,
  RevokeTokenRequest,
} from '../../shared/wire/messages.js';
import type { EnrolmentDesk } from './enrolment-desk.js';

type Caller = Pick<PeerContext, 'caller'>;
type OperatorMethods = Services['operator'];

/** The nodes that main is connected with. */
export interface ConnectedNodes {
  /** The number of connections between main and the node of this id. */
  connectionsOf(id: string): number;
  /** Gives a node no new work, or work again. Returns null if it gets work. Throws USAGE if main has no such node. */
  drain(request: DrainRequest): DrainedNode | null;
}

/** Answers operators, and logs who has let in, removed or drained whom. */
export class OperatorService implements OperatorMethods {
  /**
   * @param desk null: the cluster has no authority, and every call but drain ends with TRUST_REFUSED
   */
  constructor(
    private readonly desk: EnrolmentDesk | null,
    private readonly connected: ConnectedNodes,
    private readonly log: Logger,
  ) {}

  /** Throws JOIN_TOKEN_INVALID, TRUST_REFUSED, STORAGE_*. */
  async accept({ code }: AcceptRequest, { caller }: Caller): Promise<AcceptReply> {
    const desk = this.requireDesk();
    const { id, role, device, address, words } = await desk.accept(code);
    this.log.info('an operator let a machine in', { by: caller?.id, machine: id, role, address });
    return { id, role, device, address, words, cluster: desk.cluster };
  }

  /** Throws USAGE, STORAGE_*. */
  async createToken({ role, name, uses, lifeMs }: CreateTokenRequest, { caller }: Caller): Promise<CreateTokenReply> {
    const desk = this.requireDesk();
    if (!isPeerRole(role)) {
      throw new OdmoeError('USAGE', `${JSON.stringify(role)} is no role: give ${PEER_ROLES.slice(1).join(', ')}`);
    }
    const wanted = { role, lifeMs, uses: uses === 0 ? null : uses, ...(name === '' ? {} : { name }) };
    const { text, token } = await desk.createToken(wanted);
    const { id, usesLeft } = token;
    this.log.info('an operator made a join token', { by: caller?.id, token: id, role, name, uses: usesLeft, lifeMs });
    return { text, id, cluster: desk.cluster, words: desk.words };
  }

  listTokens(): ListTokensReply {
    return { tokens: this.requireDesk().listTokens().map(tokenLine) };
  }

  /** Throws USAGE, STORAGE_*. */
  async revokeToken({ id }: RevokeTokenRequest, { caller }: Caller): Promise<Record<string, never>> {
    await this.requireDesk().revokeToken(id);
    this.log.info('an operator revoked a join token', { by: caller?.id, token: id });
    return {};
  }

  listNodes(): ListNodesReply {
    const desk = this.requireDesk();
    const { cluster, words, digest } = desk;
    return {
      cluster,
      words,
      authorityDigest: digest,
      nodes: desk.listNodes().map(listedNode),
      waiting: desk.waitingMachines(),
    };
  }

  /** Throws USAGE, STORAGE_*. */
  async removeNode({ id }: RemoveNodeRequest, { caller }: Caller): Promise<RemoveNodeReply> {
    const desk = this.requireDesk();
    const connections = this.connected.connectionsOf(id);
    await desk.removeNode(id);
    this.log.info('an operator removed a node', { by: caller?.id, node: id, connections });
    return { connections };
  }

  /** Throws USAGE. */
  drain(request: DrainRequest, { caller }: Caller): DrainReply {
    const node = this.connected.drain(request);
    const { id, undo } = request;
    this.log.debug('an operator asked about a drain', { by: caller?.id, node: id, undo, state: node?.state });
    return { node };
  }

  private requireDesk(): EnrolmentDesk {
    if (this.desk !== null) return this.desk;
    throw new OdmoeError(
      'TRUST_REFUSED',
      'this cluster has no authority, so no machine waits and none can be let in or removed: odmoe cluster init on the host of main makes one',
    );
  }
}

function tokenLine({ token, state, leftMs }: TokenLine): JoinTokenLine {
  const { id, role, name, usesLeft, createdMs, usedBy } = token;
  return { id, role, name: name ?? '', state, usesLeft, leftMs, createdMs, usedBy: [...usedBy] };
}

function listedNode({ id, role, keyDigest, since, renewedAt, removed }: RosterEntry): ListedNode {
  return { id, role, keyDigest, sinceMs: since, renewedMs: renewedAt ?? null, removedMs: removed ?? null };
}
