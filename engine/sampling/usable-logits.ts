import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/**
 * The highest of the logits. Throws MODEL_CORRUPT when there are no logits or when one is NaN or +Infinity, because then no meaningful token
 * can be chosen; valid weights and a valid configuration produce none of these. A token with -Infinity is never chosen; at least one logit must
 * be finite.
 */
export function requireUsableLogits(logits: Float32Array): number {
  let highest = -Infinity;
  for (const logit of logits) {
    if (Number.isNaN(logit)) throw unusable('NaN');
    if (logit > highest) highest = logit;
  }
  if (!Number.isFinite(highest)) throw unusable(logits.length === 0 ? 'nothing' : `${highest} as the highest`);
  return highest;
}

function unusable(found: string): OdmoeError {
  return new OdmoeError(
    'MODEL_CORRUPT',
    `the logits hold ${found}, so no token can be chosen: weights are no numbers, or config.json does not belong to them; ` +
      'download the checkpoint again and pack it anew',
  );
}
