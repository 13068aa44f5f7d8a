//! A token as a column of a database: a signed whole number of 64 bits.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::{Database, Decode, Encode, Type};

use super::token::FencingToken;

impl<DB: Database> Type<DB> for FencingToken
where
    i64: Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        <i64 as Type<DB>>::type_info()
    }

    fn compatible(found: &DB::TypeInfo) -> bool {
        <i64 as Type<DB>>::compatible(found)
    }
}

impl<'q, DB: Database> Encode<'q, DB> for FencingToken
where
    i64: Encode<'q, DB>,
{
    fn encode_by_ref(&self, buffer: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.to_i64().encode_by_ref(buffer)
    }
}

impl<'r, DB: Database> Decode<'r, DB> for FencingToken
where
    i64: Decode<'r, DB>,
{
    fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self::try_from(i64::decode(value)?)?)
    }
}
