import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** Ends something that a node has opened. */
export type Closer = () => Promise<void> | void;

/**
 * Calls every closer, whichever of them fail. Those of one stage are called together; a stage begins when the one before has ended.
 * @throws the first failure, after the last stage
 */
export async function closeAll(stages: readonly (readonly Closer[])[]): Promise<void> {
  const faults: unknown[] = [];
  const closed = async (closer: Closer): Promise<void> => {
    try {
      await closer();
    } catch (thrown) {
      faults.push(thrown);
    }
  };
  for (const stage of stages) await Promise.all(stage.map(closed));
  if (faults.length > 0) throw toOdmoeError(faults[0]);
}
