import type { Command } from 'commander';
import type { CallMethod } from '../../shared/transport/methods.js';
import { addMainFlags, findMain, type MainFlags } from './find-main.js';

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
 * Asks main as an operator: by the socket of this host, or by a certificate. Throws what findMain throws, main's own code, NO_MAIN and TIMEOUT.
 * A cluster without an authority answers with TRUST_REFUSED.
 */
export async function askOperator<Request, Reply>(
  flags: MainFlags,
  method: CallMethod<Request, Reply>,
  request: Request,
): Promise<Reply> {
  const { address, transport } = await findMain(flags);
  return transport.call(address, method, request, { timeoutMs: OPERATOR_TIMEOUT_MS });
}
