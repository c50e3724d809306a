import type { Command } from 'commander';
import { takenWords } from '../../engine/trust/roster-changes.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { METHODS, type CallMethod } from '../../shared/transport/methods.js';
import type { CreateTokenReply, CreateTokenRequest } from '../../shared/wire/messages.js';
import { addMainFlags, findMain, type MainFlags, type ReachedMain } from './find-main.js';
import { whileAsking } from './main-wait.js';

/** The flags of a command that directs a cluster. */
export interface OperatorFlags extends MainFlags {
  json: boolean;
}

/** A busy main may take a while, and the disk of its roster too. */
const OPERATOR_TIMEOUT_MS = 15_000;

export function addOperatorFlags(command: Command): Command {
  return addMainFlags(command).option('--json', 'print one JSON object and nothing else', false);
}

/**
 * A new join token, for the peer of that name alone, if one is given. Throws USAGE where somebody in the cluster has that id already: nobody could
 * join by it. A daemon on main's own host asks main for its token itself, and may be listed already.
 */
export async function askForToken(flags: MainFlags, wanted: CreateTokenRequest): Promise<CreateTokenReply> {
  const main = await findMain(flags);
  if (wanted.name !== '') {
    const { nodes, cluster } = await askMain(main, METHODS.operator.listNodes, {});
    const holder = nodes.find(({ id, removedMs }) => id === wanted.name && removedMs === null);
    if (holder !== undefined) {
      throw new OdmoeError('USAGE', takenWords({ ...holder, since: holder.sinceMs }, cluster, 'name'));
    }
  }
  return askMain(main, METHODS.operator.createToken, wanted);
}

/**
 * Asks main as an operator: by the socket of this host, or by a certificate. Throws what findMain throws, main's own code, NO_MAIN and TIMEOUT.
 * A cluster without an authority answers with TRUST_REFUSED.
 */
export async function askOperator<Request, Reply>(
  flags: MainFlags,
  method: CallMethod<Request, Reply>,
  request: Request,
): Promise<Reply> {
  return askMain(await findMain(flags), method, request);
}

/** Asks a main that was found. Throws main's own code, NO_MAIN and TIMEOUT. */
export function askMain<Request, Reply>(
  { address, transport }: ReachedMain,
  method: CallMethod<Request, Reply>,
  request: Request,
): Promise<Reply> {
  return whileAsking(address, () => transport.call(address, method, request, { timeoutMs: OPERATOR_TIMEOUT_MS }));
}
