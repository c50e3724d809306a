/** What a received message about a pack must hold before a handler sees it. Each throws PROTOCOL_VIOLATION. */
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { MESSAGE_SIZE_LIMIT_BYTES, TEXT_LENGTH_LIMIT } from './limits.js';
import type { PackDescription, PackPiece, ReadPackRequest } from './messages.js';

/** As many bits as the message says that there are experts. */
export function validatePackDescription(description: PackDescription): PackDescription {
  const { packDigest, layers, experts, heldExperts } = description;
  if (packDigest.length > TEXT_LENGTH_LIMIT) throw violation('the digest of a pack is too long');
  const bytes = Math.ceil((layers * experts) / 8);
  if (layers < 1 || experts < 1 || heldExperts.length !== bytes || bytes > MESSAGE_SIZE_LIMIT_BYTES) {
    throw violation(
      `a pack of ${layers} layers with ${experts} experts is described by ${heldExperts.length} bytes, ${bytes} are expected`,
    );
  }
  return description;
}

/** Whether the pack has such a file and it is so long is its holder's to say. */
export function validateReadPackRequest(request: ReadPackRequest): ReadPackRequest {
  const { file, offsetBytes, lengthBytes } = request;
  if (file.length > TEXT_LENGTH_LIMIT) throw violation('the name of a file of a pack is too long');
  if (!Number.isSafeInteger(offsetBytes) || !Number.isSafeInteger(lengthBytes) || lengthBytes < 1) {
    throw violation(`${lengthBytes} bytes from byte ${offsetBytes} of a file of a pack cannot be read`);
  }
  return request;
}

export function validatePackPiece(piece: PackPiece): PackPiece {
  if (piece.bytes.length === 0) throw violation('an empty piece of a pack came');
  return piece;
}

function violation(message: string): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', message);
}
