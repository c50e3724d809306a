import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/model-shape.js';

/** Positions up to which native code computes rotations exactly. */
export const MOST_POSITIONS = 1_048_576;

/**
 * The shape with which main and shadow open their models: with room for `contextPositions` positions, where these go past the model's own (0: the
 * model's own). Rows of each position are computed as ever. @throws CONFIG_INVALID if positions would be so high that they are not exact
 */
export function servedShape(shape: ModelShape, contextPositions: number): ModelShape {
  if (contextPositions <= shape.maxPositions) return shape;
  if (contextPositions > MOST_POSITIONS) {
    throw new OdmoeError(
      'CONFIG_INVALID',
      `a context of ${contextPositions} positions (main.max_context_positions, --max-context) goes past the ${shape.maxPositions} that the model ` +
        `was made for, and past ${MOST_POSITIONS}, up to which positions are exact: lower it`,
    );
  }
  return { ...shape, maxPositions: contextPositions };
}
