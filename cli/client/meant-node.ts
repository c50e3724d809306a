import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { markInId } from '../../shared/settings/kept-ids.js';

const HOST_NAME = /^[0-9A-Za-z-]+$/;

/**
 * The id that a user means: one of these ids, or the name of a host on which one daemon of them runs. An unknown text stays as it is, so that main
 * says what it has. Throws USAGE if several daemons run on that host.
 */
export function meantNode(given: string, ids: readonly string[]): string {
  if (ids.includes(given) || !HOST_NAME.test(given)) return given;
  const onHost = ids.filter((id) => markInId(id, given) !== null);
  const [only, ...others] = onHost;
  if (others.length === 0) return only ?? given;
  throw new OdmoeError('USAGE', `several daemons of ${given} are in the cluster: say which one (${onHost.join(', ')})`);
}
