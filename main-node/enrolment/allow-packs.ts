import { allowPacks } from '../../engine/trust/roster-changes.js';
import type { EnrolmentDesk } from './enrolment-desk.js';

/** Signs that nodes may fetch what this main serves, before it serves it. Throws STORAGE_*. `slices`: those beside the pack; null: there are none. */
export async function allowServedPack(
  desk: EnrolmentDesk,
  { packDigest }: { readonly packDigest: string },
  slices: { readonly digest: string } | null,
): Promise<void> {
  const digests = slices === null ? [packDigest] : [packDigest, slices.digest];
  await desk.changeRoster((roster) => allowPacks(roster, digests));
}
