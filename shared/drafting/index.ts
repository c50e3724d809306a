export {
  MAX_DRAFT_ROWS,
  chooseDraftRows,
  distinctExperts,
  expectedTokens,
  passMs,
  type DraftCosts,
} from './choose-draft-rows.js';
export { spreadForDrafts } from './spread-for-drafts.js';
export { usableDraftRows, type PredictionSource } from './usable-draft-rows.js';
