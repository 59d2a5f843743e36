// Why a worker failed, in one sentence.

import { plain, whole } from "./dom.js";

export function failure(cause) {
  return `Rank ${whole(cause.rank)} on ${plain(cause.host)} failed: ${plain(cause.message) || plain(cause.meaning)}`;
}
