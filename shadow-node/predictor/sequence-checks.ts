import { allFinite } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { cacheRowFloats, type ModelShape } from '../../shared/model/model-shape.js';
import type { AlignRows, BeginSequence } from '../../shared/wire/messages.js';

/** Checks that the decoder cannot make: whether main's messages fit the model. They throw PROTOCOL_VIOLATION. */
export function checkStart(
  start: Pick<BeginSequence, 'tokenIds' | 'promptTokens' | 'maxPositions' | 'prefixPositions'>,
  shape: ModelShape,
): void {
  const { tokenIds, promptTokens, maxPositions, prefixPositions = 0 } = start;
  if (prefixPositions > tokenIds.length) {
    throw new OdmoeError(
      'PROTOCOL_VIOLATION',
      `a sequence of ${tokenIds.length} tokens cannot begin with ${prefixPositions} positions of another one: name fewer`,
    );
  }
  const tokensFit = tokenIds.every((id) => isToken(id, shape));
  const promptFits = promptTokens >= 1 && promptTokens <= tokenIds.length;
  if (tokensFit && promptFits && tokenIds.length <= maxPositions && maxPositions <= shape.maxPositions) return;
  throw new OdmoeError(
    'PROTOCOL_VIOLATION',
    `a sequence of ${tokenIds.length} tokens, ${promptTokens} of them prompt, for at most ${maxPositions} positions ` +
      `does not fit a model of ${shape.maxPositions} positions and ${shape.vocabSize} tokens: start both with one pack and one --max-context`,
  );
}

/** Positions are announced in order. The last one may be announced once more, with the same token, if its pass begins only then. */
export function checkToken(
  { position, tokenId }: { position: number; tokenId: number },
  known: { mainTokens: readonly number[]; prefillTokens: number; maxPositions: number; shape: ModelShape },
): void {
  const { mainTokens, prefillTokens, maxPositions, shape } = known;
  const isNext = position === mainTokens.length && position < maxPositions && isToken(tokenId, shape);
  const isAgain = position === mainTokens.length - 1 && position >= prefillTokens && tokenId === mainTokens[position];
  if (isNext || isAgain) return;
  throw new OdmoeError(
    'PROTOCOL_VIOLATION',
    `main announced token ${tokenId} at position ${position}; expected a token below ${shape.vocabSize} ` +
      `at position ${mainTokens.length} of at most ${maxPositions}: begin the sequence again`,
  );
}

export function checkAlignedRows(rows: AlignRows, shape: ModelShape, maxPositions: number): void {
  const mixer = shape.layers[rows.layer]?.mixer;
  const floats = mixer === undefined ? 0 : cacheRowFloats(mixer, shape.hiddenSize);
  const expectedBytes = rows.rows * floats * Float32Array.BYTES_PER_ELEMENT;
  const fits =
    mixer !== undefined &&
    rows.rows > 0 &&
    rows.position + rows.rows <= maxPositions &&
    rows.values.byteLength === expectedBytes;
  if (fits && !allFinite(rows.values)) {
    throw new OdmoeError(
      'PROTOCOL_VIOLATION',
      `rows of layer ${rows.layer}, positions ${rows.position} to ${rows.position + rows.rows}, hold values that are no finite numbers`,
    );
  }
  if (fits) return;
  throw new OdmoeError(
    'PROTOCOL_VIOLATION',
    `rows of layer ${rows.layer}, positions ${rows.position} to ${rows.position + rows.rows}, with ${rows.values.byteLength} bytes ` +
      `do not fit: expected layers below ${shape.layers.length}, positions below ${maxPositions} and ${expectedBytes} bytes`,
  );
}

function isToken(tokenId: number, shape: ModelShape): boolean {
  return Number.isInteger(tokenId) && tokenId >= 0 && tokenId < shape.vocabSize;
}
