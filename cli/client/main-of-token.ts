import { fittingMains, lookForMains, otherAuthorities } from '../../engine/daemon/find-cluster.js';
import { askAuthority } from '../../engine/trust/ask-authority.js';
import { requireJoinToken } from '../../engine/trust/join-token.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { stateDirectory } from '../../shared/base/files/state-directory.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { formatAddress, parseAddress } from '../../shared/wire/addresses.js';
import type { MainFlags } from './find-main.js';
import { runtime } from './process-runtime.js';

/**
 * The main of the authority that the token names: the given one, else one that mDNS finds, else one on this machine.
 * @throws JOIN_TOKEN_INVALID it is no token, or of another authority than the given main; NO_MAIN none answers; TRUST_REFUSED those that answer are of another authority
 */
export async function mainOfToken(
  token: string,
  flags: Pick<MainFlags, 'main' | 'interface'>,
  signal: AbortSignal,
): Promise<{ address: string; cluster: string }> {
  const { authorityDigest } = requireJoinToken(token);
  if (flags.main !== undefined) {
    const { host, port } = parseAddress(flags.main);
    const address = formatAddress(host, port);
    const shown = await askAuthority(address, { runtime, signal });
    if (shown !== null && shown.digest !== authorityDigest) {
      const other = { address, cluster: shown.cluster, authority: shown };
      throw new OdmoeError('JOIN_TOKEN_INVALID', otherAuthorities([other], authorityDigest));
    }
    if (shown !== null) return { address, cluster: shown.cluster };
    const text = `main at ${address} speaks no TLS, so its cluster has no authority and no operators: give the address of the main that made the token`;
    throw new OdmoeError('TLS_MISMATCH', text);
  }
  const place = {
    mainAddress: null,
    stateDirectory: stateDirectory(defaultClusterConfig().cluster),
    discovery: { provider: 'mdns', interfaceAddress: flags.interface ?? null, name: null },
  } as const;
  const wanted = { cluster: null, authorityDigest };
  const { mains } = await lookForMains(place, wanted, { runtime, abandoned: signal });
  if (signal.aborted) throw new OdmoeError('CANCELLED', 'the joining was interrupted');
  const answers = mains.filter(({ authority }) => authority !== null);
  const [fitting] = fittingMains(answers, wanted);
  if (fitting !== undefined) return fitting;
  if (answers.length === 0) {
    throw new OdmoeError('NO_MAIN', 'no main answers on this network: give its address with --main HOST:PORT');
  }
  throw new OdmoeError('TRUST_REFUSED', otherAuthorities(answers, authorityDigest));
}
