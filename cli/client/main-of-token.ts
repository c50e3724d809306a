import { askAuthority, type ShownAuthority } from '../../engine/trust/ask-authority.js';
import { readJoinToken } from '../../engine/trust/join-token.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { findMains } from '../../shared/transport/discovery/discovery.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { formatAddress, parseAddress } from '../../shared/wire/addresses.js';
import { DISCOVERY_TIMEOUT_MS, LOCAL_MAIN_ADDRESS, type MainFlags } from './find-main.js';
import { runtime } from './process-runtime.js';

/**
 * The main of the authority that the token names: the given one, else one that mDNS finds, else one on this machine.
 * @throws JOIN_TOKEN_INVALID it is no token; NO_MAIN none answers; TRUST_REFUSED those that answer are of another authority
 */
export async function mainOfToken(
  token: string,
  flags: Pick<MainFlags, 'main' | 'interface'>,
  signal: AbortSignal,
): Promise<{ address: string; cluster: string }> {
  const read = readJoinToken(token);
  if (isRefusal(read)) throw new OdmoeError('JOIN_TOKEN_INVALID', read.refusal);
  if (flags.main !== undefined) {
    const { host, port } = parseAddress(flags.main);
    const address = formatAddress(host, port);
    const shown = await askAuthority(address, { runtime, signal });
    if (shown !== null) return { address, cluster: shown.cluster };
    const text = `main at ${address} speaks no TLS, so its cluster has no authority and no operators: give the address of the main that made the token`;
    throw new OdmoeError('TLS_MISMATCH', text);
  }
  const heard = await findMains(runtime, null, DISCOVERY_TIMEOUT_MS, flags.interface ?? null);
  const addresses = new Set([...heard.map(({ address }) => address), LOCAL_MAIN_ADDRESS]);
  const found = await Promise.all([...addresses].map((address) => authorityAt(address, signal)));
  const answers = found.filter((answer) => answer !== null);
  const fitting = answers.find(({ shown }) => shown.digest === read.authorityDigest);
  if (fitting !== undefined) return { address: fitting.address, cluster: fitting.shown.cluster };
  if (answers.length === 0) {
    throw new OdmoeError('NO_MAIN', 'no main answers on this network: give its address with --main HOST:PORT');
  }
  const list = answers.map(({ address, shown }) => `"${shown.cluster}" at ${address}`).join(', ');
  const text = `the mains that answer (${list}) are of another authority than the token: give --main HOST:PORT of the one that made it`;
  throw new OdmoeError('TRUST_REFUSED', text);
}

/** Null: no main with an authority answers. */
async function authorityAt(
  address: string,
  signal: AbortSignal,
): Promise<{ address: string; shown: ShownAuthority } | null> {
  try {
    const shown = await askAuthority(address, { runtime, signal });
    return shown === null ? null : { address, shown };
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code !== 'CANCELLED') return null;
    throw thrown;
  }
}
